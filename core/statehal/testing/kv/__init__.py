"""What the checks of KV writers have in common: settings to draw, pools made of them, calls and their evidence."""
