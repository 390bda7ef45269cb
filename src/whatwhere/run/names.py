"""Names of files and steps that one command writes into a run and another command looks for."""

TRAINING_SETTINGS = ("pretrain.yaml", "finetune.yaml")  # settings of a training: of pretrain, of finetune
STUDY_SETTINGS = "study.yaml"  # settings of a study
SUMMARY = "training.json"  # facts of a finished training
TRIALS = "runs"  # folder of an evaluation with the files of its trials, which its manifest lists; no run of its own
FINISHED_TRIAL = f"done {TRIALS}/"  # start of a finished trial's step; its file's path below TRIALS follows, no ending
EVALUATE_ALL = "all"  # kind of the run of `evaluate all`, which has a folder inside for each evaluation
TRAINED_STEP = "trained"  # step that ends a training
RESULTS_STEP = "results"  # step that writes records, claims and facts of the page; the page is drawn later
