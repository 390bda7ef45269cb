"""Training: one loop, exact checkpoints, and the recipes on top of them.

Begin with `loop`: `Trainer.fit` over `checkpointer`, `logger`, `validator` and `stop`, and the step that every training
takes. `setup` makes model, optimizers and accelerator. `pretrain`, `finetune` and `contrastive` are the trainings;
`contrastive` calls `Trainer.step` directly: no checkpoints, no resume. `recipes`, `budget` and the files of settings
say what they do, `training_folder` how their folders begin and resume.
"""
