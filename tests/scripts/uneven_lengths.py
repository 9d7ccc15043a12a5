# shape: sequences of different length, padded by the collate function, time first
# samples: 8
# fetches: 1
import torch
import torch.nn.functional as F
import toy
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Sentences(Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        return torch.arange(index, index + 3 + index % 20) % 50


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, toy.FEATURES)
        self.rnn = nn.RNN(toy.FEATURES, 32)
        self.head = nn.Linear(32, 50)

    def forward(self, tokens):
        return self.head(self.rnn(self.embed(tokens))[0])


args = toy.parser().parse_args()
toy.setup()
data = Sentences()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler, collate_fn=pad_sequence)
model = DDP(Tagger())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for tokens in loader:  # [time, batch]
        optimizer.zero_grad()
        logits = model(tokens[:-1])
        F.cross_entropy(logits.flatten(0, 1), tokens[1:].flatten()).backward()
        optimizer.step()

toy.finish(args.out)
