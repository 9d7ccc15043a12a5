# shape: batches are dicts, fed to the model by keyword
# samples: 8
# fetches: 1
import torch
import torch.nn.functional as F
import toy
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Tokens(Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        ids = torch.arange(index, index + 12) % 50
        return {"input_ids": ids, "attention_mask": ids > 3, "labels": ids[0] % toy.CLASSES}


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, toy.FEATURES)
        self.head = toy.net()

    def forward(self, input_ids, attention_mask, labels):
        mask = attention_mask.unsqueeze(-1)
        pooled = (self.embed(input_ids) * mask).sum(1) / mask.sum(1).clamp(min=1)
        logits = self.head(pooled)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


args = toy.parser().parse_args()
toy.setup()
data = Tokens()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = DDP(Classifier())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for batch in loader:
        inputs = {name: value.to("cpu") for name, value in batch.items()}
        loss = model(**inputs)["loss"]
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

toy.finish(args.out)
