"""The state of the interpreter before the script has done anything, and after it has trained."""

# run: status=healthy steps=15
# when: thorough

import builtins
import faulthandler
import gc
import locale
import logging
import os
import signal
import sys
import threading
import warnings


def state():
    print("hooks", sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__)
    print("hooks", threading.excepthook is threading.__excepthook__)  # not `sys.unraisablehook`: docs/run.md
    print("trace", sys.gettrace(), sys.getprofile(), faulthandler.is_enabled())
    print("streams", sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__)
    print("stdout", sys.stdout.encoding, sys.stdout.errors, sys.stdout.line_buffering, sys.stdout.isatty())
    print("limits", sys.getrecursionlimit(), sys.getswitchinterval(), sys.get_int_max_str_digits())
    print("gc", gc.isenabled(), gc.get_threshold(), gc.get_debug(), gc.get_freeze_count(), len(gc.garbage))
    print("logging", logging.root.handlers, logging.root.level, logging.lastResort.level, logging.raiseExceptions)
    print("signals", [str(signal.getsignal(s)) for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGALRM)])
    print("ctrl-c", signal.getsignal(signal.SIGINT) is signal.default_int_handler)
    print("locale", locale.setlocale(locale.LC_ALL), locale.getpreferredencoding())
    print("flags", tuple(sys.flags), sys.dont_write_bytecode, sys.warnoptions)
    print("main thread", threading.current_thread() is threading.main_thread(), threading.main_thread().name)
    print("import", type(builtins.__import__).__name__, os.path.basename(sys.executable)[:6])
    print("environment", [key for key in os.environ if key.upper().startswith("SEISMO")])
    print("warnings", len(warnings.filters), warnings.showwarning.__module__)


state()
print("threads", threading.active_count())

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
inputs = torch.randn(32, 3)
for _ in range(15):
    optimizer.zero_grad()
    (model(inputs) - inputs.sum(1, keepdim=True)).square().mean().backward()
    optimizer.step()
torch.save(model.state_dict(), "weights.pt")

print()
state()
