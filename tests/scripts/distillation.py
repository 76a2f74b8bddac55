"""Knowledge distillation: the teacher is trained, then frozen in eval mode and asked under no_grad."""
# run: status=healthy steps=40+50
# when: thorough
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(4)
T, ALPHA = 3.0, 0.7

x = torch.randn(300, 12)
y = (x @ torch.randn(12, 6)).argmax(dim=1)


def batches(n):
    for _ in range(n):
        i = torch.randint(0, len(x), (50,))
        yield x[i], y[i]


teacher = nn.Sequential(nn.Linear(12, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 6))
opt = torch.optim.Adam(teacher.parameters(), lr=5e-3)
for xb, yb in batches(40):
    loss = F.cross_entropy(teacher(xb), yb)
    opt.zero_grad(); loss.backward(); opt.step()
print("teacher", loss.item())

teacher.eval()
teacher.requires_grad_(False)
student = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 6))
opt = torch.optim.Adam(student.parameters(), lr=1e-2)
for step, (xb, yb) in enumerate(batches(50)):
    with torch.no_grad():
        soft = F.softmax(teacher(xb) / T, dim=1)
    logits = student(xb)
    kd = F.kl_div(F.log_softmax(logits / T, dim=1), soft, reduction="batchmean") * T * T
    loss = ALPHA * kd + (1 - ALPHA) * F.cross_entropy(logits, yb)
    opt.zero_grad(); loss.backward(); opt.step()
    if step % 10 == 9:
        print("student", step + 1, loss.item(), kd.item())

torch.save(student.state_dict(), "weights.pt")
