package testenv

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/internal/testenv/images"
	"github.com/dlock-go/dlock/internal/testenv/server"
)

// TestEveryServerIsComplete checks that each image has a recipe and each recipe has an image. The
// message names the file in which the missing part belongs.
func TestEveryServerIsComplete(t *testing.T) {
	t.Parallel()
	names := images.Names()
	for _, name := range names {
		if !slices.ContainsFunc(recipes, func(r *server.Recipe) bool { return r.Name == name }) {
			t.Errorf("images/%[1]s has no recipe: write internal/testenv/recipe/%[1]s.go"+
				" and add it to the table in internal/testenv/servers.go", name)
		}
	}
	for _, r := range recipes {
		for _, file := range []string{"official", "Dockerfile"} {
			path := filepath.Join("images", r.Name, file)
			if _, err := os.Stat(path); err != nil {
				t.Errorf("the server %s has no image: add internal/testenv/%s", r.Name, path)
			}
		}
		checkFacts(t, r)
	}
}

// checkFacts checks that a recipe has all facts.
func checkFacts(t *testing.T, r *server.Recipe) {
	t.Helper()
	for what, missing := range map[string]bool{
		"Port": r.Port == 0, "Program": r.Program == "", "Package": r.Package == "",
		"Command": r.Command == nil, "URL": r.URL == "", "Probe": r.Probe == nil,
		"ADDRESS in URL": r.URLOf("a") == r.URL,
	} {
		if missing {
			t.Errorf("the recipe of %s in internal/testenv/recipe has no %s", r.Name, what)
		}
	}
}

// recipeFunction is the first line of a function that returns a recipe.
var recipeFunction = regexp.MustCompile(
	`(?m)^func ([A-Z]\w*)\(.*\) \*(?:server\.Recipe|group\.EnsembleRecipe) \{`)

// TestEveryRecipeIsUsed checks that servers.go has a function for each recipe.
func TestEveryRecipeIsUsed(t *testing.T) {
	t.Parallel()
	functions, err := os.ReadFile("servers.go")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("recipe/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("the files of recipes: %v, %v", files, err)
	}
	found := 0
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range recipeFunction.FindAllStringSubmatch(string(source), -1) {
			found++
			if !strings.Contains(string(functions), "recipe."+name[1]+"(") {
				t.Errorf("no function uses the recipe %s of internal/testenv/%s: add its functions"+
					" and its line of the table to internal/testenv/servers.go", name[1], file)
			}
		}
	}
	if found < len(recipes) {
		t.Errorf("found only %d functions that return recipes", found)
	}
}
