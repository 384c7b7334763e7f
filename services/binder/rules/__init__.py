"""Published rules of the binder, grouped by the document that they implement (docs/design.md has the list of documents)."""
