"""Five folds, each with a deep copy of one base model."""
# run: status=healthy steps=24+24+24+24+24
# when: thorough
import copy
import numpy as np
import torch
import torch.nn as nn

np.random.seed(0)
torch.manual_seed(0)
X = np.random.randn(150, 8).astype("float32")
Y = (X[:, 0] > X[:, 1]).astype("int64")
folds = np.array_split(np.random.permutation(150), 5)
base_model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
criterion = nn.CrossEntropyLoss()

scores = []
for k in range(5):
    test_idx = folds[k]
    train_idx = np.concatenate([f for j, f in enumerate(folds) if j != k])
    model = copy.deepcopy(base_model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    xt, yt = torch.from_numpy(X[train_idx]), torch.from_numpy(Y[train_idx])
    for epoch in range(8):
        for xb, yb in zip(xt.split(40), yt.split(40)):
            optimizer.zero_grad()
            loss = criterion(model(xb), yb)
            loss.backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        pred = model(torch.from_numpy(X[test_idx])).argmax(1).numpy()
    scores.append((pred == Y[test_idx]).mean())
    print("Fold %d: acc %.4f loss %.6f" % (k, scores[-1], loss.item()))
    torch.save(model.state_dict(), f"fold{k}.pth")
print("mean %.4f std %.4f" % (np.mean(scores), np.std(scores)))
