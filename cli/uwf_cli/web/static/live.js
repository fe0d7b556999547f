// What makes a page live.
