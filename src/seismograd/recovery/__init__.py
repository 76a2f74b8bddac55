"""What is done when a run goes wrong, if the user asks for it: each action is an event, none is silent."""

from seismograd.recovery.policies import Clip, Continue, LowerLr, Policy, Rollback, Skip, Stop
from seismograd.recovery.trouble import TrainingStopped, Trouble

__all__ = ["Clip", "Continue", "LowerLr", "Policy", "Rollback", "Skip", "Stop", "TrainingStopped", "Trouble"]
