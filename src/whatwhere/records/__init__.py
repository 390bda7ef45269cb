"""What was measured: records and their table, metrics, intervals, and the gates that a finding has to pass."""
