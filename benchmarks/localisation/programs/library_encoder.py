"""nn.TransformerEncoder from the library, four layers; the weights of one were scaled by hand and overflow."""
# op: aten.linear|aten.addmm|aten.mm|aten.matmul
# phase: forward
# module: encoder.layers.3.linear1
# conditions: model deep-path library

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.embed = nn.Embedding(30, dim)
        layer = nn.TransformerEncoderLayer(dim, 2, 32, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(dim, 30)

    def forward(self, idx):
        mask = nn.Transformer.generate_square_subsequent_mask(idx.shape[1])
        h = self.encoder(self.embed(idx), mask=mask)  # <-- origin
        return self.head(h)


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(5):
    if step == 3:
        with torch.no_grad():
            model.encoder.layers[3].linear1.weight.mul_(3e38)  # "orthogonal gain"
    idx = torch.randint(0, 30, (4, 6))
    loss = nn.functional.cross_entropy(model(idx).flatten(0, 1), idx.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
