"""Lightning's Trainer, which gives the loader a DistributedSampler and steps by a closure."""

import os
import sys

import job
import lightning
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = job.Net()
        self.stopwatch = None

    def training_step(self, batch, index):
        x, y = batch
        return F.cross_entropy(self.net(x), y)

    def on_train_batch_end(self, outputs, batch, index):
        self.stopwatch = self.stopwatch or job.Stopwatch()
        self.stopwatch.tick(len(batch[0]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


trainer = lightning.Trainer(
    accelerator="cpu",
    devices=int(os.environ["LOCAL_WORLD_SIZE"]),
    strategy="ddp",
    max_epochs=1000,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    default_root_dir=sys.argv[1],
)
trainer.fit(Module(), DataLoader(job.Rows(), batch_size=8, shuffle=True, drop_last=True))
