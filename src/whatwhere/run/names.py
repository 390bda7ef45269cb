"""Names of the files and steps of a run by which another command finds what it needs there."""

TRAINING_SETTINGS = ("pretrain.yaml", "finetune.yaml")  # settings of a training, by its kind
STUDY_SETTINGS = "study.yaml"  # settings of a study
SUMMARY = "training.json"  # summary of a finished training
TRIALS = "runs"  # folder of an evaluation's trials
TRIAL_STEP = f"done {TRIALS}/"  # the step of a trial begins so; the name of its file without ending follows
EVALUATE_ALL = "all"  # kind of the run of `evaluate all`, which has a folder inside for each evaluation
TRAINED_STEP = "trained"  # step that ends a training
RESULTS_STEP = "results"  # step that writes records, claims and the facts of the page, which is drawn after it
