"""Records of measurements and their table, metrics, intervals, and the gates that a finding must pass."""
