export function addTaskTests() {}
