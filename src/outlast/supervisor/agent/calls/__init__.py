"""An agent's calls as effects: outlast records them first, holds repetitions and tells the agent which were cut off."""
