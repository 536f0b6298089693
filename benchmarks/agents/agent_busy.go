package agents

// workOnMeanwhile is an agent that reads the text, as readText does, and goes on with other tasks by itself whenever it
// waits for one, whatever the server says. Other agents wait idly, unless the server says not to call a tool before a
// time.
func workOnMeanwhile(f failure) decision {
	d := readText(f)
	d.meanwhile = true
	return d
}
