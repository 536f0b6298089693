package agents

// checkWrites is an agent that reads the text, as readText does, and knows by itself that a write that failed may have
// been done: it always checks before it writes again, whatever the server says.
func checkWrites(f failure) decision {
	d := readText(f)
	if f.step == writing && d.do == again {
		d.do = check
	}
	return d
}
