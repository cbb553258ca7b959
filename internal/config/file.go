package config

import (
	"fmt"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"
)

// readFile returns the keys of a file with their texts. Keys of an inner mapping have that of the outer one and a dot
// before them. Letters count as small ones.
func readFile(name string) (map[string]string, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var top yaml.Node
	if err := yaml.Unmarshal(b, &top); err != nil || top.Kind == 0 { // 0: it is empty
		return nil, err
	}
	var all any
	if err := top.Decode(&all); err != nil { // it finds aliases without end
		return nil, err
	}
	keys := map[string]string{}
	return keys, flatten(keys, "", top.Content[0])
}

func flatten(keys map[string]string, key string, n *yaml.Node) error {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case n.Kind == yaml.MappingNode:
		var inner map[string]yaml.Node
		if err := n.Decode(&inner); err != nil {
			return err
		}
		for k, v := range inner {
			if err := flatten(keys, strings.TrimPrefix(key+"."+strings.ToLower(k), "."), &v); err != nil {
				return err
			}
		}
		return nil
	case key == "":
		return fmt.Errorf("line %d: want lines of the form key: value", n.Line)
	case n.Kind == yaml.SequenceNode:
		var items []string
		if err := n.Decode(&items); err != nil {
			return err
		}
		if keys[key] = strings.Join(items, ","); keys[key] == "" {
			keys[key] = "none"
		}
		return nil
	}
	if keys[key] = n.Value; n.Tag == "!!null" {
		keys[key] = ""
	}
	return nil
}
