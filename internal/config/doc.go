// Package config holds what a configuration is made of: rows, each a key with its
// variable, default and help; the file and the environment that give keys values;
// and hints for what is misspelt. What a value sets is the business of the package
// that has the rows: coordinated for jobs, the command line tool for holdfast gpud.
//
// A flag wins over a variable, a variable over the file, the file over the default.
// The file is YAML.
package config
