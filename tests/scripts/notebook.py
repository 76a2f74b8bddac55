#!/usr/bin/env python
# coding: utf-8

# # My experiment
#
# Exported with `jupyter nbconvert --to script`.

# run: status=healthy steps=20+40
# when: thorough

# %%
# In[1]:

try:
    get_ipython().run_line_magic('matplotlib', 'inline')
    get_ipython().run_line_magic('load_ext', 'autoreload')
except NameError:
    print("not in a notebook")

# %%
# In[2]:

import torch
from torch import nn
torch.manual_seed(0);

# %%
# In[3]:

X = torch.randn(200, 2)
y = ((X[:, 0] > 0) ^ (X[:, 1] > 0)).float()
X.shape, y.mean()

# %%
# In[7]:

model = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())
opt = torch.optim.Adam(model.parameters(), lr=0.01)
bce = nn.BCELoss()
for epoch in range(20):
    opt.zero_grad()
    loss = bce(model(X).squeeze(), y)
    loss.backward()
    opt.step()
loss

# %%
# In[12]: bigger model, same cell run again

model = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 1), nn.Sigmoid())
opt = torch.optim.Adam(model.parameters(), lr=0.02)
losses = []
for epoch in range(40):
    opt.zero_grad()
    loss = bce(model(X).squeeze(), y)
    loss.backward()
    opt.step()
    losses.append(loss.item())

# %%
# In[13]:

print(losses[::10])
print(((model(X).squeeze() > 0.5) == y).float().mean())
torch.save(model.state_dict(), 'weights.pt')

# %%
# In[14]:

print(sorted(name for name in globals() if not name.startswith('_')))
