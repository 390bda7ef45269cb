"""Work behind the commands that leave a page or records: study, heads, geometry, spectra, evaluate, finetune."""
