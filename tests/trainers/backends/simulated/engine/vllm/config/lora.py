from typing import Literal

MaxLoRARanks = Literal[1, 8, 16, 32, 64, 128, 256, 320, 512]
