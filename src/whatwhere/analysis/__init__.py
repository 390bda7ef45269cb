"""What is inside a trained model: features, linear probes, spectra of tables. Imports nothing here: records alone load fast."""
