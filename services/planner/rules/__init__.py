"""Published rules, one small file each, grouped by the document that they implement."""
