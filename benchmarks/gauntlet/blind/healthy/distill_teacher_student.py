"""Knowledge distillation: softmax on logits by hand (temperature 4, T^2 factor, KLDiv of log_softmax vs softmax) next to cross-entropy on raw logits; teacher in eval, never updated in phase two."""
# expects:
# source: https://docs.pytorch.org/tutorials/beginner/knowledge_distillation_tutorial.html
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(0)
K = 8
means = torch.randn(K, 3, 10)
y = torch.randint(0, K, (4500,))
X = means[y, torch.randint(0, 3, (4500,))] + 0.6 * torch.randn(4500, 10)
train_set, test_set = random_split(TensorDataset(X, y), [3500, 1000])
train_dl = DataLoader(train_set, batch_size=100, shuffle=True)
test_dl = DataLoader(test_set, batch_size=500)


def mlp(h):
    return nn.Sequential(nn.Linear(10, h), nn.ReLU(), nn.Dropout(0.1), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, K))


def accuracy(m):
    m.eval()
    with torch.no_grad():
        return sum((m(x).argmax(1) == t).sum().item() for x, t in test_dl) / 1000


def train(model, epochs, lr):
    opt = torch.optim.Adam(model.parameters(), lr=lr)
    ce = nn.CrossEntropyLoss()
    for e in range(epochs):
        model.train()
        for x, t in train_dl:
            opt.zero_grad()
            loss = ce(model(x), t)
            loss.backward()
            opt.step()
        print(f"teacher epoch {e + 1} loss {loss.item():.3f} acc {accuracy(model):.3f}")


def train_kd(teacher, student, epochs, lr, T=4.0, soft_w=0.6, ce_w=0.4):
    ce = nn.CrossEntropyLoss()
    opt = torch.optim.Adam(student.parameters(), lr=lr)
    teacher.eval()
    for e in range(epochs):
        student.train()
        for x, t in train_dl:
            opt.zero_grad()
            with torch.no_grad():
                t_logits = teacher(x)
            s_logits = student(x)
            soft_t = F.softmax(t_logits / T, dim=-1)
            soft_s = F.log_softmax(s_logits / T, dim=-1)
            kd = F.kl_div(soft_s, soft_t, reduction="batchmean") * T ** 2
            loss = soft_w * kd + ce_w * ce(s_logits, t)
            loss.backward()
            opt.step()
        print(f"student epoch {e + 1} loss {loss.item():.3f} acc {accuracy(student):.3f}")


teacher, student = mlp(128), mlp(24)
train(teacher, 5, 2e-3)
train_kd(teacher, student, 8, 5e-3)
