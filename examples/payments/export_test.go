package main

// Run is main with its surroundings as arguments.
var Run = run

// Main is main.
var Main = main
