// Package journal stores opaque records in one file.
package journal
