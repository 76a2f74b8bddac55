"""DQN on a grid: q.gather gives (B, 1), the bootstrap target is (B,), smooth_l1 broadcasts to (B, B): all Q values go to the batch mean, the greedy policy stays poor."""
# expects: broadcast-loss
# report: https://github.com/pytorch/tutorials/issues/263
import copy
import random
import torch
import torch.nn as nn
import torch.nn.functional as F

random.seed(0)
torch.manual_seed(0)
S = 5
MOVES = [(0, 1), (0, -1), (1, 0), (-1, 0)]


def enc(p):
    v = torch.zeros(2 * S)
    v[p[0]] = 1
    v[S + p[1]] = 1
    return v


def env_step(p, a):
    q = (min(S - 1, max(0, p[0] + MOVES[a][0])), min(S - 1, max(0, p[1] + MOVES[a][1])))
    done = q == (S - 1, S - 1)
    return q, 1.0 if done else -0.05, done


policy = nn.Sequential(nn.Linear(2 * S, 64), nn.ReLU(), nn.Linear(64, 4))
target = copy.deepcopy(policy)
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
memory, lengths = [], []
steps = 0
for episode in range(60):
    p, done, t = (0, 0), False, 0
    eps = max(0.1, 1 - episode / 25)
    while not done and t < 40:
        with torch.no_grad():
            a = random.randrange(4) if random.random() < eps else policy(enc(p)).argmax().item()
        q, r, done = env_step(p, a)
        memory.append((enc(p), a, r, enc(q), done))
        p, t, steps = q, t + 1, steps + 1
        if len(memory) >= 64 and steps % 2 == 0:
            s, a_, r_, s2, d = zip(*random.sample(memory, 64))
            q_sa = policy(torch.stack(s)).gather(1, torch.tensor(a_).unsqueeze(1))
            with torch.no_grad():
                nxt = target(torch.stack(s2)).max(1).values
                y = torch.tensor(r_) + 0.95 * nxt * (1 - torch.tensor(d, dtype=torch.float32))
            loss = F.smooth_l1_loss(q_sa, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if steps % 100 == 0:
            target.load_state_dict(policy.state_dict())
    lengths.append(t)
    if episode % 10 == 9:
        print(f"episode {episode+1} steps {steps} mean length {sum(lengths[-10:])/10:.1f} loss {loss.item():.4f}")
