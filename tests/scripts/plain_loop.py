"""Everything at module level, the way the first tutorial does it."""
# run: status=healthy steps=40
import torch
import torch.nn as nn
import torch.optim as optim

torch.manual_seed(42)

X = torch.randn(256, 10)
w_true = torch.randn(10, 1)
y = X @ w_true + 0.1 * torch.randn(256, 1)

model = nn.Sequential(
    nn.Linear(10, 32),
    nn.ReLU(),
    nn.Linear(32, 1),
)
criterion = nn.MSELoss()
optimizer = optim.Adam(model.parameters(), lr=0.01)

for epoch in range(5):
    running_loss = 0.0
    for i in range(0, 256, 32):
        optimizer.zero_grad()
        out = model(X[i:i+32])
        loss = criterion(out, y[i:i+32])
        loss.backward()
        optimizer.step()
        running_loss += loss.item()
    print('epoch %d, loss: %.6f' % (epoch + 1, running_loss / 8))

torch.save(model.state_dict(), 'weights.pt')
print('Finished Training')
