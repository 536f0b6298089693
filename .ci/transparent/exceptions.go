package main

// exceptions are the tests whose verdict may differ, by package and name, with the reason. The docs of
// the adapters say the same.
var exceptions = map[string]string{}
