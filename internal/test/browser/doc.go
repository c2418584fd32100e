// Package browser is a module of its own for the tests that use the operator console in a
// real browser: Debian's Chromium, driven by chromedp, which no user of the library needs
// in its go.mod. The tests check each page by axe-core, too.
//
//	go test -args -screenshots=DIR
//
// also writes pictures of each page, in both themes and at the width of a phone, into a
// folder.
package browser
