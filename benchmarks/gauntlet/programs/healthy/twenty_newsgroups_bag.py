"""EmbeddingBag text classification as in the torchtext tutorial: offsets, collate_fn, SGD at 5, clipping at 0.1."""

import torch
from torch import nn
from torch.utils.data import DataLoader


class TextClassificationModel(nn.Module):
    def __init__(self, vocab_size, embed_dim, num_class):
        super().__init__()
        self.embedding = nn.EmbeddingBag(vocab_size, embed_dim, sparse=False)
        self.fc = nn.Linear(embed_dim, num_class)
        self.embedding.weight.data.uniform_(-0.5, 0.5)
        self.fc.weight.data.uniform_(-0.5, 0.5)
        self.fc.bias.data.zero_()

    def forward(self, text, offsets):
        return self.fc(self.embedding(text, offsets))


def collate(batch):
    labels, texts, offsets = [], [], [0]
    for label, text in batch:
        labels.append(label)
        texts.append(text)
        offsets.append(len(text))
    return torch.tensor(labels), torch.cat(texts), torch.tensor(offsets[:-1]).cumsum(0)


torch.manual_seed(0)
topics = torch.softmax(2 * torch.randn(4, 200), 1)
labels = torch.randint(0, 4, (800,)).tolist()
corpus = [(k, torch.multinomial(topics[k], int(torch.randint(5, 20, (1,))), replacement=True)) for k in labels]
model = TextClassificationModel(200, 24, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=5)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1.0, gamma=0.1)
criterion = nn.CrossEntropyLoss()
for epoch in range(3):
    for label, text, offsets in DataLoader(corpus, batch_size=16, shuffle=True, collate_fn=collate):
        optimizer.zero_grad()
        loss = criterion(model(text, offsets), label)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
    scheduler.step()
    print(epoch, loss.item())
