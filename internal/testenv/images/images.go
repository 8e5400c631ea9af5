// Package images names the container images of the test servers. The folder of this package has
// one folder for each kind of server:
//
//	Dockerfile  the recipe of the image dlock-test/NAME, which scripts/images.sh builds
//	            from Debian packages
//	official    the name of the image of the server's makers
//
// Other files of a folder belong to its Dockerfile. A container uses the image in the variable
// DLOCK_TEST_IMAGE_NAME if it is set, otherwise the built image, otherwise the official image.
//
// Both images of a server must accept the same command and the same flags, because a recipe does
// not depend on the image.
package images

import (
	"embed"
	"strings"
)

//go:embed */official
var folders embed.FS

// Names returns the names of all images, which are the names of the folders, sorted.
func Names() []string {
	entries, err := folders.ReadDir(".")
	if err != nil {
		panic(err) // the root of an embed.FS can always be read
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}

// Official returns the image of the server's makers. It returns an error if the image has no
// folder.
func Official(name string) (string, error) {
	image, err := folders.ReadFile(name + "/official")
	return strings.TrimSpace(string(image)), err
}

// Built returns the image that scripts/images.sh builds.
func Built(name string) string { return "dlock-test/" + name }

// Variable returns the environment variable that replaces the image.
func Variable(name string) string {
	return "DLOCK_TEST_IMAGE_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}
