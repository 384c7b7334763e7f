"""Published rules of the binder, grouped by the document that they implement (listed in docs/design.md)."""
