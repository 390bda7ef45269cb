"""Benchmarks of trained models: fine-tuning on GLUE, answers in SQuAD, sentence vectors, linguistic probes.

A file for each family of tasks. Each measures one model on one task; `study` puts them in order.
"""
