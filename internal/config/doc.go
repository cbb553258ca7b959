// Package config holds the parts of a configuration: rows, each a key with its variable, default and help; the file and
// the environment that give keys values; and hints for misspelt names. The package that has the rows applies the
// values: coordinated for jobs, the command line tool for holdfast gpud.
//
// A flag wins over a variable, a variable over the file, the file over the default.
// The file is YAML.
package config
