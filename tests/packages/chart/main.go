// Renders a Helm chart as `helm template` does, for tests on machines without Helm: values, helpers, and the functions
// that the chart uses. It prints a JSON list of the objects. Overrides are JSON on standard input. Without the path of a
// chart it prints the objects of the YAML on standard input: what Helm itself renders.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig/v3"
	"sigs.k8s.io/yaml"
)

func fail(what string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		os.Exit(1)
	}
}

func readYAML(path string) map[string]any {
	text, err := os.ReadFile(path)
	fail(path, err)
	value := map[string]any{}
	fail(path, yaml.UnmarshalStrict(text, &value))
	return value
}

// merge lays overrides over values, as Helm does: maps key by key, everything else whole.
func merge(values, overrides map[string]any) {
	for key, override := range overrides {
		below, isMap := values[key].(map[string]any)
		if over, ok := override.(map[string]any); ok && isMap {
			merge(below, over)
		} else {
			values[key] = override
		}
	}
}

func toYAML(value any) string {
	text, err := yaml.Marshal(value)
	fail("toYaml", err)
	return strings.TrimSuffix(string(text), "\n")
}

var separator = regexp.MustCompile(`(?m)^---\n`)

// parse reads the objects of a rendered file.
func parse(name, text string) []any {
	objects := []any{}
	for _, document := range separator.Split(text, -1) {
		var object any
		fail(name, yaml.UnmarshalStrict([]byte(document), &object))
		if object != nil {
			objects = append(objects, object)
		}
	}
	return objects
}

func main() {
	if len(os.Args) == 1 {
		text, err := io.ReadAll(os.Stdin)
		fail("objects", err)
		fail("output", json.NewEncoder(os.Stdout).Encode(parse("objects", string(text))))
		return
	}
	chart := os.Args[1]
	meta, values, overrides := readYAML(filepath.Join(chart, "Chart.yaml")), readYAML(filepath.Join(chart, "values.yaml")), map[string]any{}
	text, err := io.ReadAll(os.Stdin)
	fail("overrides", err)
	fail("overrides", json.Unmarshal(text, &overrides))
	merge(values, overrides)

	// Strict: a value that is misspelt is an error, and none that is empty.
	root := template.New("chart").Option("missingkey=error").Funcs(sprig.TxtFuncMap())
	root.Funcs(template.FuncMap{
		"toYaml": toYAML,
		"include": func(name string, data any) (string, error) {
			var out bytes.Buffer
			err := root.ExecuteTemplate(&out, name, data)
			return out.String(), err
		},
	})
	files, err := filepath.Glob(filepath.Join(chart, "templates", "*"))
	fail("templates", err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		fail(file, err)
		_, err = root.New(file).Parse(string(text))
		fail("parse", err)
	}
	data := map[string]any{
		"Values":  values,
		"Chart":   map[string]any{"Name": meta["name"], "Version": meta["version"], "AppVersion": meta["appVersion"]},
		"Release": map[string]any{"Name": "pool", "Namespace": "shop", "Service": "Helm"},
	}
	objects := []any{}
	for _, file := range files {
		var out bytes.Buffer
		fail("render", root.ExecuteTemplate(&out, file, data))
		if strings.HasSuffix(file, ".yaml") {
			objects = append(objects, parse(file, out.String())...)
		}
	}
	fail("output", json.NewEncoder(os.Stdout).Encode(objects))
}
