def markdown(r):
    import json
    return json.dumps(r, indent=1)
def lost(r): return False
