// Package plot draws the results of `holdfast bench` as SVG and PNG.
package plot
