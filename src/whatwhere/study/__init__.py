"""Work behind the commands of models and corpora: study, heads, attention, geometry, spectra, evaluate, finetune."""
