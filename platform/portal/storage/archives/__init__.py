"""Archives from strangers, unpacked safely, and archives of our own, packed the same every time."""
