"""What puts each knob's value in force, takes it back and reads it back: one class for each knob, an `Applier`."""
