// The system's own header knows this machine's processor only, and the target is another.
