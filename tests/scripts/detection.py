# shape: batches are lists of tensors of different length, with a list of targets
# samples: 3
# fetches: 1
import torch
import toy
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Scenes(Dataset):
    def __len__(self):
        return 240

    def __getitem__(self, index):
        boxes = 1 + index % 5
        return torch.randn(10 + index % 7, toy.FEATURES), {"boxes": torch.rand(boxes, 4)}


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = toy.net(outputs=4)

    def forward(self, images, targets):
        found = [self.body(image).mean(0) for image in images]
        wanted = [target["boxes"].mean(0) for target in targets]
        return {"box": sum((f - w).abs().sum() for f, w in zip(found, wanted, strict=True))}


def collate(batch):
    return tuple(zip(*batch, strict=True))


args = toy.parser().parse_args()
toy.setup()
data = Scenes()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=3, sampler=sampler, collate_fn=collate)
model = DDP(Detector())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for scenes, labels in loader:
        images = [scene.to("cpu") for scene in scenes]
        targets = [{k: v.to("cpu") for k, v in t.items()} for t in labels]
        losses = sum(model(images, targets).values())
        optimizer.zero_grad()
        losses.backward()
        optimizer.step()

toy.finish(args.out)
