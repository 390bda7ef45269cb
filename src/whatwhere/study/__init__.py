"""Studies: several models compared on one corpus, from text to records, claims and a report."""
