"""How long a run takes on which GPUs: its own rollouts, played on engines that are simulated.

The code that plays a run plays here, too: strategies, players, batchers. Only what takes time is
replaced (`simulate`): engines, environments, and the clock, which leaps to the next event. So every
algorithm waits here for what it waits for in a run, also one of a third party.
"""
