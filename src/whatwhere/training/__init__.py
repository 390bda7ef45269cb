"""Training: one loop, exact checkpoints, and the trainings on top of them.

Begin with `loop`: `Trainer.fit` over `checkpointer`, `logger`, `validator` and `stop`, and the step that every training
takes. `setup` moves or shards the model, and makes optimizers and accelerator. `pretrain`, `finetune` and `contrastive`
are the trainings; `contrastive` calls `Trainer.take_step` directly: no checkpoints, no resume. `*_keys`, `*_settings`,
`recipes` and `budget` decide what a training does; `training_folder` begins, resumes and finishes its folder.
"""
