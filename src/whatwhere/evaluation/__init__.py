"""What a model is good for: fine-tuning on GLUE, answers in SQuAD, sentence vectors, linguistic probes; a file a family
of tasks. Each measures one model on one task; `study` puts them in order."""
